mod evictions;
mod judge;
mod unstarted;
