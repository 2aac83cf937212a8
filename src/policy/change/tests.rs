//! Golden cases (one file each), the public watcher's table of sixteen, bad input, then properties.
//!
//! "Row" is the number in the conformance checklist for the public project: "runtime-watcher §12 row 9" is row 9 of it.

mod case;
mod equality;
mod golden;
mod properties;
mod registration;
mod reviews;
mod table;
