//! Golden cases (one file each), the public watcher's table of sixteen, bad input, then properties.

mod case;
mod equality;
mod golden;
mod properties;
mod registration;
mod reviews;
mod table;
