//! Golden cases (one file each), the example of the requirements first, then properties.

mod bounds;
mod case;
mod configuration;
mod example;
mod golden;
mod properties;
mod reviews;
mod validation;
