from sparsesmith.cli import main

main()
