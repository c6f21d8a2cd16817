"""From text to packed sequences: documents → cleaning → wordpiece → packing → merging, put together by `making`."""
