//! Answers any JSON as a request of an API server at admission and conversion, whatever the object looks like.
#![no_main]

use api::labels::COMPOSITION_VERSION;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

// Includes the modules that answer, since the program is not a library.
#[allow(dead_code)]
#[path = "../../src/webhook/mutate.rs"]
mod mutate;
#[allow(dead_code)]
#[path = "../../src/webhook/review.rs"]
mod review;

fn admitted(bytes: &[u8]) {
    let Ok(review) = serde_json::from_slice::<review::AdmissionReview>(bytes) else {
        return;
    };
    let verdict = mutate::mutate(&review.request);
    let answer = verdict.to_review(&review.request.uid);
    assert_eq!(answer["response"]["uid"], review.request.uid);
    assert_eq!(answer["response"]["allowed"], true);
    if let Some(patch) = &verdict.patch {
        let labels = review.request.labels().unwrap_or_default();
        assert!(
            !labels.contains_key(COMPOSITION_VERSION),
            "a label is replaced: {patch}"
        );
        assert_eq!(patch.as_array().map(Vec::len), Some(1));
    }
}

fn converted(bytes: &[u8]) {
    let Ok(review) = serde_json::from_slice::<review::ConversionReview<'_>>(bytes) else {
        return;
    };
    let (desired, asked) = (review.request.desired.clone(), review.request.objects.len());
    let answer = review.answer(&|object, desired| {
        object["apiVersion"] = Value::from(desired);
        Ok(())
    });
    // An object that was nested too deeply to parse is returned unchanged.
    let Ok(answer) = serde_json::to_value(&answer) else {
        return;
    };
    let response = &answer["response"];
    if response["result"]["status"] == "Success" {
        let objects = response["convertedObjects"].as_array().expect("a list");
        assert_eq!(objects.len(), asked);
        assert!(objects.iter().all(|object| object["apiVersion"] == desired));
    }
}

fuzz_target!(|bytes: &[u8]| {
    admitted(bytes);
    converted(bytes);
});
