"""One NeuronCore: what a kernel keeps its engines busy with."""
