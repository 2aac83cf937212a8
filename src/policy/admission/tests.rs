//! Golden cases (one file each), the documented example first, then properties.

mod bounds;
mod case;
mod configuration;
mod example;
mod fallback;
mod golden;
mod properties;
mod reviews;
mod validation;
