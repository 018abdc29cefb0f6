//! The scenarios that need no pods, on one control plane: the platform's programs run on the host, each as the
//! `ServiceAccount` that it has in a pod.
#![expect(clippy::unwrap_used, reason = "a field that is not there fails the scenario")]

mod allow_definitions;
mod attack_others;
mod await_types;
mod balance_compositions;
mod bind_roles;
mod change_bound;
mod choose_home;
mod compare_verbs;
mod convert_versions;
mod delete_policies;
mod end_operator;
mod fetch_charts;
mod follow_lookups;
mod forge_marks;
mod grant_chart;
mod hand_over_type;
mod hand_over_wait;
mod join_cluster;
mod keep_tenants_apart;
mod keep_to_krateo;
mod kill_controller;
mod kill_operator;
mod kill_provider;
mod label_compositions;
mod limit_controller;
mod migrate_krateo;
mod open_namespace;
mod operate_compositions;
mod relocate_controller;
mod render_core_provider;
mod render_installer;
mod render_multicluster;
mod restrict_lookups;
mod restrict_namespaces;
mod rotate_certificates;
mod rotate_key;
mod run_installer_hooks;
mod serve_clusters;
mod serve_joined_cluster;
mod start_controller;
