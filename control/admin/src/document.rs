//! The OpenAPI 3.1 document, made from the table of routes and the schemas of the response types.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use crate::problem::{PROBLEM_MEDIA_TYPE, Problem};
use crate::routes::{Content, Parameter, ROUTES, Route, RouteResponse, Verb};

/// The API as an OpenAPI 3.1 document for the given program version.
pub fn openapi_document(version: &str) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(item) = item {
            item.insert(verb_key(route.verb).to_owned(), operation(route, &mut generator));
        }
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir admin API",
            "version": version,
            "description": "Probes, metrics and control of one gateway process.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Problem": {
                    "description": "The error, its cause, and the next step.",
                    "content": { PROBLEM_MEDIA_TYPE: { "schema": problem } },
                },
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Required if the `[admin]` section sets a token.",
                },
            },
        },
    })
}

/// The operation's key in a path item.
fn verb_key(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::Post => "post",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
    }
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for one in route.responses {
        responses.insert(one.status.to_string(), response(one, generator));
    }
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    let of_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = of_path.map(path_parameter).collect();
    parameters.extend(route.parameters.iter().map(|one| parameter(one, generator)));
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        // An empty requirement: no token needed, always or as long as none is set.
        "security": if route.open { json!([]) } else { json!([{}, { "token": [] }]) },
    });
    if let Some(schema_of) = route.body {
        operation["requestBody"] = json!({
            "required": true,
            "description": "A JSON object. An unknown member is an error.",
            "content": { "application/json": { "schema": schema_of(generator) } },
        });
    } else if route.verb == Verb::Post {
        operation["requestBody"] = json!({
            "required": false,
            "description": "No body, or an empty JSON object.",
            "content": {
                "application/json": { "schema": { "type": "object", "maxProperties": 0 } },
            },
        });
    }
    operation
}

fn parameter(parameter: &Parameter, generator: &mut SchemaGenerator) -> Value {
    json!({
        "name": parameter.name,
        "in": "query",
        "required": false,
        "allowEmptyValue": parameter.name == "verbose",
        "description": parameter.about,
        "schema": (parameter.schema)(generator),
    })
}

fn path_parameter(name: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": "Name of the key.",
        "schema": { "type": "string" },
    })
}

fn response(response: &RouteResponse, generator: &mut SchemaGenerator) -> Value {
    let content = match response.content {
        Content::Json(schema_of) => {
            json!({ "application/json": { "schema": schema_of(generator) } })
        }
        Content::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        Content::Problem => json!({ PROBLEM_MEDIA_TYPE: { "schema": generator.subschema_for::<Problem>() } }),
    };
    json!({ "description": response.about, "content": content })
}
