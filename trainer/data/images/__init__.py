"""Images: folders of classes or with a labels.csv, decoding, resizing and augmentation."""
