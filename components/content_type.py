"""Content types of objects in Cloud Storage, of which TensorFlow knows none."""

from components.cloud_errors import in_one_line


def set_content_type(uri: str, content_type: str) -> None:
    """Set the content type of an object, by which a browser shows it instead of saving it.

    Elsewhere than in Cloud Storage there is nothing to set; STORAGE_EMULATOR_HOST is followed.
    """
    if not uri.startswith("gs://"):
        return
    from google.cloud import storage
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, _, name = uri.removeprefix("gs://").partition("/")
    with in_one_line(f"setting the content type of {uri}", role="roles/storage.objectUser"):
        blob = storage.Client(project=None).bucket(bucket).blob(name)
        blob.content_type = content_type
        # Set twice it is the same, which the client does not know.
        blob.patch(retry=DEFAULT_RETRY)
