//! Printed forms: one line as text, stable names as JSON.

use baton::LostReason;
use baton::election::{Departure, Stage};
use baton::record::Record;
use baton::session::{EndReason, State};
use baton::tree::Stat;
use baton::work_queue::SettledState;
use serde_json::{json, to_value};

#[test]
fn values_print_on_one_line_and_serialize_under_stable_names() {
    for (text, printed) in [
        (
            State::Connected { epoch: 2 }.to_string(),
            "connected (connection 2)",
        ),
        (State::AuthFailed.to_string(), "credentials refused"),
        (Departure::Removed.to_string(), "deposed"),
        (
            SettledState::DeadLettered.to_string(),
            "moved to the dead letters",
        ),
        (Stage::OfferStart.to_string(), "creating its offer"),
    ] {
        assert_eq!(text, printed);
    }
    let stat = Stat {
        czxid: 0x1f,
        version: 3,
        ephemeral_owner: 0xab,
        ..Stat::default()
    };
    assert_eq!(
        stat.to_string(),
        "version 3, 0 bytes, 0 children, czxid 0x1f, mzxid 0x0, of session 0xab"
    );
    assert_eq!(to_value(stat).unwrap()["ephemeral_owner"], 0xab);
    for (value, expected) in [
        (
            to_value(State::Connected { epoch: 2 }).unwrap(),
            json!({"state": "connected", "epoch": 2}),
        ),
        (
            to_value(EndReason::ExpiredByServer).unwrap(),
            json!("expired_by_server"),
        ),
        (
            to_value(LostReason::LeaseEnded).unwrap(),
            json!("lease_ended"),
        ),
        (to_value(Departure::Removed).unwrap(), json!("removed")),
        (
            to_value(Stage::DetermineComplete { position: 1 }).unwrap(),
            json!({"stage": "determine_complete", "position": 1}),
        ),
    ] {
        assert_eq!(value, expected);
    }
}

#[test]
fn a_record_prints_who_it_is() {
    let record = br#"{"id":"00000000-0000-0000-0000-000000000001","host":"alpha","pid":7}"#;
    let record = Record::from_bytes(record).unwrap();
    assert_eq!(record.to_string(), "alpha:7");
}
