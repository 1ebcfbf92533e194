//! Requests as they are documented, and the OpenAPI document of them.

use serde_json::{Map, Value, json};

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// A whole number that is not negative.
    Count,
    Integer,
    /// One of these words.
    Word(&'static [&'static str]),
    List,
    Object,
}

/// A field of a body or a parameter of a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    name: &'static str,
    kind: Kind,
    is_required: bool,
}

impl Field {
    /// A field that may be left out.
    pub(crate) const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            is_required: false,
        }
    }

    /// A field that must be there.
    pub(crate) const fn required(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            is_required: true,
        }
    }

    fn schema(&self) -> Value {
        match self.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Count => json!({ "type": "integer", "minimum": 0 }),
            Kind::Integer => json!({ "type": "integer" }),
            Kind::Word(words) => json!({ "type": "string", "enum": words }),
            Kind::List => json!({ "type": "array", "items": { "type": "object" } }),
            Kind::Object => json!({ "type": "object" }),
        }
    }
}

/// Form of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// One JSON object.
    Object,
    /// JSON objects, one a line, as long as the response is open.
    Stream,
    Text,
}

/// One request of the interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    fields: &'static [Field],
    parameters: &'static [Field],
    answer: Answer,
}

impl Operation {
    const fn new(method: &'static str, path: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            summary,
            fields: &[],
            parameters: &[],
            answer: Answer::Object,
        }
    }

    pub(crate) const fn get(path: &'static str, summary: &'static str) -> Self {
        Self::new("get", path, summary)
    }

    pub(crate) const fn post(path: &'static str, summary: &'static str) -> Self {
        Self::new("post", path, summary)
    }

    pub(crate) const fn put(path: &'static str, summary: &'static str) -> Self {
        Self::new("put", path, summary)
    }

    pub(crate) const fn delete(path: &'static str, summary: &'static str) -> Self {
        Self::new("delete", path, summary)
    }

    /// The same, with these fields of its body.
    pub(crate) const fn fields(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }

    /// The same, with these parameters of its query.
    pub(crate) const fn parameters(mut self, parameters: &'static [Field]) -> Self {
        self.parameters = parameters;
        self
    }

    /// The same, with another form of answer.
    pub(crate) const fn answers(mut self, answer: Answer) -> Self {
        self.answer = answer;
        self
    }

    fn document(&self) -> Value {
        let in_path = self.path.split('{').skip(1);
        let in_path = in_path.filter_map(|part| part.split_once('}')).map(|(name, _)| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        });
        let in_query = self.parameters.iter().map(|field| {
            json!({ "name": field.name, "in": "query", "required": field.is_required, "schema": field.schema() })
        });
        let parameters: Vec<Value> = in_path.chain(in_query).collect();
        let (kind, schema) = match self.answer {
            Answer::Object => ("application/json", "object"),
            Answer::Stream => ("application/x-ndjson", "object"),
            Answer::Text => ("text/plain", "string"),
        };
        let mut document = json!({
            "summary": self.summary,
            "parameters": parameters,
            "responses": {
                "200": {
                    "description": "done",
                    "content": { kind: { "schema": { "type": schema } } },
                },
                "default": { "$ref": "#/components/responses/Refusal" },
            },
        });
        if !self.fields.is_empty() {
            let properties = self.fields.iter();
            let properties: Map<String, Value> = properties
                .map(|field| (field.name.to_owned(), field.schema()))
                .collect();
            let required: Vec<&str> = self
                .fields
                .iter()
                .filter(|field| field.is_required)
                .map(|field| field.name)
                .collect();
            let mut schema = json!({
                "type": "object",
                "properties": properties,
                "additionalProperties": false,
            });
            if let (false, Some(schema)) = (required.is_empty(), schema.as_object_mut()) {
                schema.insert("required".to_owned(), json!(required));
            }
            let body = json!({
                "required": !required.is_empty(),
                "content": { "application/json": { "schema": schema } },
            });
            if let Some(document) = document.as_object_mut() {
                document.insert("requestBody".to_owned(), body);
            }
        }
        document
    }
}

/// The document of these requests.
pub(crate) fn document<'a>(operations: impl Iterator<Item = &'a Operation>) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(operation.method.to_owned(), operation.document());
        }
    }
    let parts = ["error", "thing", "cause", "next_step", "code"];
    let texts = [&parts[..], &["held_by"]].concat();
    let mut properties: Map<String, Value> = texts
        .iter()
        .map(|part| ((*part).to_owned(), json!({ "type": "string" })))
        .collect();
    let time = json!({ "type": "integer", "minimum": 0 });
    properties.insert("unavailable_for_ms".to_owned(), time);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Baton's agent",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Locks, elections, queues, members and counters for programs in any language. A path parameter `path` is a znode path without its first slash, with its slashes.",
        },
        "paths": paths,
        "components": {
            "responses": {
                "Refusal": {
                    "description": "refused: 400, 404, 405, 413 and 429 refused, 409 not acquired, 410 lost, 503 unavailable, 504 unknown",
                    "content": { "application/json": { "schema": {
                        "type": "object",
                        "properties": properties,
                        "required": parts,
                    } } },
                },
            },
        },
    })
}
