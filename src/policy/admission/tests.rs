//! Golden cases (one file each), the seed's example first, then properties.

mod case;
mod configuration;
mod golden;
mod properties;
mod reviews;
mod seed;
mod validation;
