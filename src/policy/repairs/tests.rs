mod evictions;
mod judge;
