"""Set content types of objects in Cloud Storage, which TensorFlow can't."""

from components.cloud_errors import as_input_error


def set_content_type(uri: str, content_type: str) -> None:
    """Set the content type of an object, so that a browser shows it instead of saving it.

    Does nothing outside Cloud Storage; STORAGE_EMULATOR_HOST is respected.
    """
    if not uri.startswith("gs://"):
        return
    from google.cloud import storage
    from google.cloud.storage.retry import DEFAULT_RETRY

    bucket, _, name = uri.removeprefix("gs://").partition("/")
    with as_input_error(f"setting the content type of {uri}", role="roles/storage.objectUser"):
        blob = storage.Client(project=None).bucket(bucket).blob(name)
        blob.content_type = content_type
        # The client does not retry a patch by default; this one is idempotent.
        blob.patch(retry=DEFAULT_RETRY)
