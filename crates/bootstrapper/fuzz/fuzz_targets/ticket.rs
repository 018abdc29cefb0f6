//! Any bytes as the join service's answer: an accepted one writes no other files than those that control planes share.
#![no_main]

use attest::ClusterId;
use bootstrap_proto::proto::IssueJoinTicketResponse;
use bootstrapper::join::{Ticket, accept};
use bootstrapper::stage::Role;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|bytes: &[u8]| {
    for role in [Role::Worker, Role::ControlPlane] {
        let Ok(answer) = IssueJoinTicketResponse::decode(bytes) else {
            return;
        };
        let Ok(accepted) = Ticket::try_from(answer).map(|ticket| {
            let id = ClusterId::derive(&ticket.measurement_secret, ticket.measurement_salt);
            accept(ticket, role, id.register())
        }) else {
            return;
        };
        let Ok(accepted) = accepted else {
            continue;
        };
        let files = &accepted.ticket.control_plane_files;
        assert_eq!(files.len(), if role == Role::Worker { 0 } else { 8 });
        assert!(files.iter().all(|(name, _)| !name.starts_with('/') && !name.contains("..")));
        assert!(accepted.ticket.api_server_endpoint.contains(':'));
    }
});
