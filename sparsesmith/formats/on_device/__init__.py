"""Storage formats built where the matrix lies: the bits of the host's builders, from CSR on the device."""
