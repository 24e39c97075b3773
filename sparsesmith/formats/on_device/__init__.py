"""Storage formats built where the matrix lies: the same bits as the host's builders, from a CSR matrix on the device."""
