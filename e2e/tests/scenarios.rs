//! Every scenario that needs pods, on one cluster. Each file is named after what is done to what.
#![expect(clippy::unwrap_used, reason = "a field that is not there fails the scenario")]

mod change_version;
mod delete_composition;
mod delete_definition;
mod heal_bundle;
mod heal_composition;
mod heal_definition;
mod hold_composition;
mod install_composition;
mod install_platform;
mod judge_composition;
mod leave_composition_alone;
mod look_at_composition;
mod operate_releases;
mod pause_composition;
mod refuse_definition;
mod report_failed_hook;
mod restrict_controller;
mod restrict_inspector;
mod run_demo;
mod serve_tenant_pods;
mod update_composition;
