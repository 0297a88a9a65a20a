"""The whole book as one printable file, made from the pages of the built book: ``make pdf``."""
