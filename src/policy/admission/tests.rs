//! Golden cases (one file each), the documented example first, then properties.

mod bounds;
mod case;
mod configuration;
mod example;
mod golden;
mod properties;
mod reviews;
mod validation;
