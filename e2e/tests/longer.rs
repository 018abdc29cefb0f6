//! Scenarios that need pods and a cluster each, for what tests without pods show as well (`kill_provider`,
//! `relocate_controller`): `make e2e-longer` runs them.

mod interrupt_definition;
mod move_controller;
