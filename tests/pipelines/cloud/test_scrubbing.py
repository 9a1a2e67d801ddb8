"""The bundle of `first-hour` has no names of a project, whatever they look like."""

import base64
import json
from urllib.parse import quote

import pytest

from pipelines.cloud.scrubbing import PLACEHOLDER, Scrubber

NUMBER = "482910573312"


def encode(text):
    return base64.b64encode(text.encode()).decode()


def texts(project, bucket, account):
    """Return JSON with the names in all places where answers, errors and links have them."""
    link = f"https://console.cloud.google.com/vertex-ai/runs/first?project={project}&authuser=1"
    image = f"us-central1-docker.pkg.dev/{project}/images/training@sha256:{64 * '1'}"
    page = encode(json.dumps({"after": f"projects/{project}/locations/x", "bucket": bucket}))
    return {
        "name": f"projects/{NUMBER}/locations/us-central1/pipelineJobs/first",
        "bucket": bucket,
        "error": {
            "message": f"Permission 'x' denied on resource '//aiplatform.googleapis.com/projects/"
            f"{project}/locations/us-central1' for {account}. Project {project} ({NUMBER}).",
            "details": [f"service-{NUMBER}@gcp-sa-aiplatform.iam.gserviceaccount.com lacks it"],
        },
        "members": ["user:" + account, "domain:acme-corp.example", "group:all@acme-corp.example"],
        "principal": f"principal://iam.googleapis.com/projects/{NUMBER}/subject/jane.roe",
        "labels": {"team": f"x{project}y", f"{project}-cost": "1", "owner": project.upper()},
        "uris": [f"gs://{bucket}/runs", f"/gcs/{bucket}/runs", f"photos of gs://{bucket}, all"],
        "pipelineSpec": {"image": image, "args": json.dumps({"root": f"gs://{bucket}/x"})},
        "encoded": [quote(f"projects/{project}/b/{bucket}", safe=""), quote(account, safe="")],
        "twice": quote(quote(f"gs://{bucket}/a b", safe=""), safe=""),
        "pageToken": page,
        "glued": f"token_{encode(f'..{project}..')}",
        "nextPageToken": encode(account).rstrip("=").replace("+", "-").replace("/", "_"),
        "link": link,
        "key": "projects/keys-of-acme/locations/r/keyRings/ring-of-acme/cryptoKeys/acme-key",
        "network": f"projects/{NUMBER}/global/networks/acme-net",
        "header": "Authorization: Bearer ya29.a0AfH6SMBx-secret_token",
        "signed": "https://storage.googleapis.com/b/o?X-Goog-Signature=5f4dcc3b5aa765d61d8327de",
        "host": "https://aiplatform.acme-corp.example:8443/v1 at 10.128.0.7 or fd20:ab1c::7",
        "private": "https://us-central1-aiplatform-acme.p.googleapis.com",
        "path": "/home/janeroe/build",
        "number": int(NUMBER),
    }


SECRETS = [
    *(NUMBER, "acme-corp", "jane.roe", "janeroe", "keys-of-acme", "ring-of-acme", "acme-key"),
    *("acme-net", "ya29", "secret_token", "5f4dcc3b5aa7", "8443", "10.128.0.7", "fd20:", "-acme"),
]


@pytest.mark.parametrize(
    ("project", "bucket", "account"),
    [
        ("my-project", "my-project-training", "training-runner@my-project.iam.gserviceaccount.com"),
        ("acme-9", "acme-99-data", "jane.roe@acme-corp.example"),
        ("prod42", "xprod42x", "prod42@prod42.iam.gserviceaccount.com"),
        ("example.org:shop-ai", "shop.example.org", "o'jane.roe+x@mail.acme-corp.example"),
        ("acmeresearch", "acmeresearchbucket", "9-compute@developer.gserviceaccount.com"),
    ],
)
def test_no_name_is_left_anywhere(project, bucket, account):
    scrubber = Scrubber({})
    scrubber.learn("PROJECT", project)
    given = texts(project, bucket, account)
    scrubber.find(given)
    scrubbed = scrubber.scrub(given)
    text = json.dumps(scrubbed).lower()
    local = account.partition("@")[0]
    # A name of one digit is no secret, and in every date.
    names = [local] if len(local) > 1 and not local.startswith("9-") else []
    for secret in [project, bucket, account, *names, *SECRETS]:
        assert secret not in text, secret
    for secret in (project, bucket, account):
        for start in range(3):
            within = encode("x" * start + secret)[4 if start else 0 : len(secret) // 3 * 4]
            assert within and within.lower() not in text
        assert quote(secret, safe="").lower() not in text
    # It is as readable as before, and the same names have the same placeholders.
    assert scrubbed["name"] == "projects/<NUMBER-1>/locations/us-central1/pipelineJobs/first"
    assert scrubbed["uris"][:2] == ["gs://<BUCKET-1>/runs", "/gcs/<BUCKET-1>/runs"]
    assert scrubbed["bucket"] == "<BUCKET-1>"
    assert scrubbed["labels"]["team"] == "x<PROJECT-1>y"
    assert scrubbed["number"] == "<NUMBER-1>"
    assert "images/training@sha256:1111" in scrubbed["pipelineSpec"]["image"]
    # Once more changes nothing, and a later scrubber with the names continues.
    assert scrubber.scrub(scrubbed) == scrubbed
    scrubber.find(scrubbed)
    assert Scrubber(scrubber.names).scrub(given) == scrubbed


@pytest.mark.parametrize("project", ["pipeline", "digits", "training", "states"])
def test_project_named_like_a_word_of_the_requests_leaves_them_readable(project):
    scrubber = Scrubber({})
    scrubber.learn("PROJECT", project)
    given = {"pipelineSpec": {}, "trainingJob": "digits", "states": "training of a pipeline"}
    assert scrubber.scrub(given) == given
    for before in ("projects/{}/x", "gcr.io/{}/x", "?project={}", "a@{}.iam.gserviceaccount.com"):
        assert scrubber.scrub(before.format(project)) == before.format("<PROJECT-1>")


def test_public_names_stay():
    given = [
        "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest",
        "https://us-central1-aiplatform.googleapis.com/v1/projects",
        "gcr.io/ml-pipeline/google-cloud-pipeline-components:2.22.0",
        "2026-11-23T23:34:14.101120Z 12:34:56 digits@1 sha256:0123 version 2.17.0",
        "roles/storage.objectUser for gs://BUCKET/FOLDER and projects/PROJECT",
        {"state": "PIPELINE_STATE_RUNNING", "name": True, "count": 3},
    ]
    scrubber = Scrubber({})
    scrubber.find(given)
    assert scrubber.names == {}
    assert scrubber.scrub(given) == given


def test_unknown_names_are_numbered_by_kind():
    scrubber = Scrubber({})
    scrubber.find("gs://first-one gs://second-one gs://first-one a@b.example")
    shown = scrubber.scrub("second-one, FIRST-ONE, a@b.example")
    assert shown == "<BUCKET-2>, <BUCKET-1>, <ACCOUNT-1>@<DOMAIN-1>"
    assert len(PLACEHOLDER.findall(shown)) == 4
