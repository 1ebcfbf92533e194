//! The OpenAPI document says what the handlers do: each request that it names, with each field that
//! they take and no other.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::support::Stage;

/// A value of a field's type, and one of another type.
fn samples(schema: &Value) -> (Value, Value) {
    if let Some(words) = schema["enum"].as_array() {
        return (words[0].clone(), json!("none of these"));
    }
    match schema["type"].as_str().unwrap() {
        "string" => (json!("a"), json!(5)),
        "integer" if schema["minimum"] == 0 => (json!(0), json!(-1)),
        "integer" => (json!(-3), json!("x")),
        "array" => (json!([]), json!({})),
        "object" => (json!({}), json!(7)),
        kind => panic!("no sample of {kind}"),
    }
}

/// The names that a handler expected, as its refusal of a field lists them.
fn expected(refusal: &Value) -> BTreeSet<String> {
    let cause = refusal["cause"].as_str().unwrap();
    let (_, list) = cause
        .split_once("expected ")
        .unwrap_or_else(|| panic!("no names of fields: {cause}"));
    list.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn fill(path: &str) -> String {
    let path = path.replace("{path}", "doc").replace("{number}", "7");
    path.replace("{id}", "none")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_documented_request_takes_its_fields_and_no_other() {
    let stage = Stage::new().await;
    let (status, document) = stage.ask("GET", "/v1/openapi.json", "").await;
    assert_eq!(status, 200);
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let url = fill(path);
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let about = format!("{method} {url}");
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if let Some(properties) = schema["properties"].as_object() {
                tried += body(&stage, (&method, &url), properties, &schema["required"]).await;
            }
            let parameters = operation["parameters"].as_array().unwrap();
            let named: BTreeSet<String> = parameters
                .iter()
                .filter(|it| it["in"] == "query")
                .map(|it| it["name"].as_str().unwrap().to_owned())
                .collect();
            if !named.is_empty() {
                let unknown = format!("{url}?nonsense=1");
                let (status, refusal) = stage.ask(&method, &unknown, "").await;
                assert_eq!(status, 400, "{about}: {refusal}");
                assert_eq!(expected(&refusal), named, "{about}");
                tried += 1;
            }
            let answer = stage.open("PATCH", &url, "").await;
            assert_eq!(answer.status, 405, "PATCH {url}");
            // It is there: whatever else is wrong with it, method and path are not.
            let body = r#"{"wait_ms": 0}"#;
            let answer = stage.open(&method, &url, body).await;
            let is_lookup = url.contains("/none/");
            assert!(
                answer.status != 405 && (answer.status != 404 || is_lookup),
                "{about}"
            );
        }
    }
    assert!(tried > 50, "{tried} requests were tried");
}

/// Tries bodies that are not JSON, and each field with the right type and a wrong one.
async fn body(
    stage: &Stage,
    (method, url): (&str, &str),
    properties: &Map<String, Value>,
    required: &Value,
) -> usize {
    let about = format!("{method} {url}");
    let mut tried = 0;
    for nothing in ["[]", "null", "{", "\"x\"", "\u{0}", "{\"a\":1}{}"] {
        let (status, refusal) = stage.ask(method, url, nothing).await;
        assert_eq!(
            (status, &refusal["code"]),
            (400, &"refused".into()),
            "{about} {nothing}"
        );
        tried += 1;
    }
    let (status, refusal) = stage.ask(method, url, r#"{"nonsense": 1}"#).await;
    assert_eq!(status, 400, "{about}: {refusal}");
    let names: BTreeSet<String> = properties.keys().cloned().collect();
    assert_eq!(expected(&refusal), names, "{about}");
    let is_required = |name: &str| {
        let mut required = required.as_array().into_iter().flatten();
        required.any(|it| it == name)
    };
    for (name, schema) in properties {
        let mut fields: Map<String, Value> = properties
            .iter()
            .filter(|(name, _)| is_required(name) || *name == "wait_ms")
            .map(|(name, schema)| (name.clone(), samples(schema).0))
            .collect();
        let (right, wrong) = samples(schema);
        fields.insert(name.clone(), wrong);
        let (status, refusal) = stage.ask(method, url, &json!(fields).to_string()).await;
        assert_eq!(
            (status, &refusal["code"]),
            (400, &"refused".into()),
            "{about} {name}"
        );
        fields.insert(name.clone(), right);
        let mut answer = stage.open(method, url, &json!(fields).to_string()).await;
        if answer.status == 400 {
            let refusal = answer.whole().await;
            let cause = refusal["cause"].as_str().unwrap();
            let is_type = [
                "unknown field",
                "invalid type",
                "invalid value",
                "missing field",
            ];
            assert!(
                !is_type.iter().any(|it| cause.contains(it)),
                "{about} {name}: {refusal}"
            );
        }
        if is_required(name) {
            let (status, refusal) = stage.ask(method, url, "{}").await;
            assert_eq!(status, 400, "{about} without {name}: {refusal}");
        }
        tried += 2;
    }
    tried
}
