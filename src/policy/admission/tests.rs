//! Tests of admission decisions: golden cases (one file each), the documented example, and properties.

mod bounds;
mod case;
mod configuration;
mod example;
mod fallback;
mod golden;
mod properties;
mod reviews;
mod validation;
