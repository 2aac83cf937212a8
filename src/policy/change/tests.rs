//! Tests of decisions about changes: golden cases (one file each), the table of the public watcher, invalid input,
//! and properties.

mod case;
mod equality;
mod golden;
mod properties;
mod registration;
mod reviews;
mod table;
