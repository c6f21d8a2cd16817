"""Detection and instance segmentation on COCO: mmdet's Mask R-CNN on XCiT, fed and trained by the shared loop.

Nothing outside this folder imports mmdet, mmengine or mmcv, and nothing imports this folder before a config asks for
it. `operators.load_mmdet` comes before any other module of it (train/tasks/__init__.py).
"""
