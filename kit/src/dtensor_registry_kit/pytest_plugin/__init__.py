"""What plugin authors test with: a conformance test class and fixtures."""
