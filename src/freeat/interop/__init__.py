"""A trained model as a folder that others can use: weights, a manifest, a model card, and ONNX."""
