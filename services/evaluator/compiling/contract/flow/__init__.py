"""What compiled PTX does with addresses: where it may write, what it computes from them, what it touches too early.

Whatever a text looked like, these rules hold for the code that runs:

- every store goes to an address with one origin each way the flow can go: the output, scratch, shared or local memory;
- addresses of buffers are for reaching memory: no condition, no stored value, no index comes from one;
- each instruction is on a list, with what it writes to; one that is not counts as a store to anywhere.
"""
