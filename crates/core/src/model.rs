//! The closed, cited list of models.
