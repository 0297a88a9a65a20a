"""Speed and scale, peers side by side: each module prints ratios and can write JSON."""
