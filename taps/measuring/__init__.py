"""How fast this machine is: costs of a cycle, rates of training, drafting and decoding."""
