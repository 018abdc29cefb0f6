"""Writes objects through every served version of generated CRDs on a real API server, labels each through
every other version, and counts the fields that were lost.

Usage: writes.py KUBECONFIG < LINES, where LINES are those of `print_crds_with_several_versions`.
"""

import base64, http.client, json, ssl, sys, tempfile, time
from urllib.parse import urlparse


def connect(path):
    """A connection as the first user to the first cluster of a kubeconfig in JSON, with certificates inside."""
    config = json.load(open(path))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]

    def file(pem):
        with tempfile.NamedTemporaryFile(delete=False) as out:
            out.write(base64.b64decode(pem))
        return out.name

    context = ssl.create_default_context(cafile=file(cluster["certificate-authority-data"]))
    context.load_cert_chain(file(user["client-certificate-data"]), file(user["client-key-data"]))
    url = urlparse(cluster["server"])
    return http.client.HTTPSConnection(url.hostname, url.port, context=context)


def call(connection, method, path, body=None, kind="application/json"):
    connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"{}")


def keeps(part, whole):
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and keeps(inner, whole[key]) for key, inner in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(keeps, part, whole))
    return part == whole


def main():
    connection = connect(sys.argv[1])
    crds = [json.loads(line) for line in sys.stdin]
    crds = [line for line in crds if len(line["writes"]) > 1][:120]
    for number, line in enumerate(crds):
        crd, plural = line["crd"], f"writes{number}"
        crd["metadata"]["name"] = plural + ".composition.krateo.io"
        crd["spec"]["names"].update(plural=plural, singular=plural, kind=f"W{number}", listKind=f"W{number}List")
        crds_path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, answer = call(connection, "POST", crds_path, crd)
        assert status in (201, 409), answer
    time.sleep(10)
    written = labelled = refused = lost = 0
    for number, line in enumerate(crds):
        path = lambda version: f"/apis/composition.krateo.io/{version}/namespaces/default/writes{number}"
        for version, specs in line["writes"].items():
            for at, spec in enumerate(specs):
                name = f"{version}-{at}"
                body = {"apiVersion": f"composition.krateo.io/{version}", "kind": f"W{number}", "metadata": {"name": name}, "spec": spec}
                status, before = call(connection, "POST", path(version), body)
                if status != 201:
                    assert status == 422, before
                    continue
                written += 1
                if not keeps(spec, before["spec"]):
                    print("lost on create", spec, before["spec"])
                    lost += 1
                for other in line["writes"]:
                    patch = {"metadata": {"labels": {"through": other}}}
                    status, after = call(connection, "PATCH", f"{path(other)}/{name}", patch, "application/merge-patch+json")
                    if status == 422:
                        refused += 1
                        continue
                    assert status == 200, after
                    labelled += 1
                    _, after = call(connection, "GET", f"{path(version)}/{name}")
                    if not keeps(before["spec"], after["spec"]):
                        print("lost", version, other, before["spec"], after["spec"])
                        lost += 1
    print(f"{len(crds)} CRDs, {written} objects, {labelled} writes through versions, {refused} refused, {lost} losses")


main()
