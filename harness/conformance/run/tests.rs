mod checks;
mod installation;
mod refusals;
mod removal;
mod requests;
