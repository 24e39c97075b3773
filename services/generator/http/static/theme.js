// Before anything is painted: the theme that was chosen earlier. Not a module, so that it runs at once.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // No storage: the system's theme it is.
}
document.documentElement.classList.add("scripted");
