"""What plugins mend of torch's rules, held against the torch at hand."""
