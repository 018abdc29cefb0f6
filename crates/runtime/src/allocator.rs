//! The allocator of release builds: it is faster than the C library's, and returns memory after a peak.
//!
//! Its settings are in `.cargo/config.toml`.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
