package provenance_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
	"github.com/headgate-io/headgate/source/provenance"
)

const documents = `
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec: {url: "https://ci:s3cret@git.example.org/app.git", interval: 5m, ref: {branch: main}, include: [{repository: {name: lib}}]}
status:
  artifact: {path: a, url: "https://x/a", revision: "main@sha1:1111111111111111111111111111111111111111", digest: "blake3:ab", lastUpdateTime: "2026-01-01T00:00:00Z"}
  conditions: [{type: SourceVerified, status: "True", reason: Succeeded, message: "verified signature of commit '1111' with key 'SHA256:<a>'", lastTransitionTime: "2026-01-01T00:00:00Z"}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata: {name: lib}
status:
  artifact: {path: b, url: "https://ci:s3cret@x/b.tar.gz?sig=s3cret", revision: "latest@sha256:22", digest: "sha256:33", lastUpdateTime: "2026-01-01T00:00:00Z"}
`

// statement returns the statement about the first document, whose archive is given.
func statement(t *testing.T, archive io.Reader) (*provenance.Statement, *source.Set) {
	t.Helper()
	set := new(source.Set)
	testenv.Must(t, set.Decode("test.yaml", strings.NewReader(documents)))
	entry, err := lock.New(set.Objects[0])
	testenv.Must(t, err)
	entry.Tag = strings.Repeat("4", 40)
	s, err := provenance.New(provenance.Builder{ID: "https://ci.example.org/release", Version: map[string]string{"headgate": "v1.2.3"}}, set.Objects[0], entry, set.Objects[1:], archive)
	testenv.Must(t, err)
	return s, set
}

// The text of a statement is fixed, and has no credentials.
func TestStatement(t *testing.T) {
	s, _ := statement(t, strings.NewReader("no archive"))
	s.Add("registry.example.org/app", "sha256:55")
	s.Add("registry.example.org/app", "sha256:55")
	text, err := s.Encode()
	testenv.Must(t, err)
	testenv.Equal(t, string(text), `{
  "_type": "https://in-toto.io/Statement/v1",
  "subject": [
    {
      "name": "GitRepository/default/app",
      "digest": {
        "blake3": "ab",
        "sha256": "7275b9d1e6c0314c52bfca6c77534b8eaa3a8454a5c74b20e3e5f983e32c6877"
      }
    },
    {
      "name": "registry.example.org/app",
      "digest": {
        "sha256": "55"
      }
    }
  ],
  "predicateType": "https://slsa.dev/provenance/v1",
  "predicate": {
    "buildDefinition": {
      "buildType": "https://source.headgate.dev/fetch/v1",
      "externalParameters": {
        "object": "GitRepository/default/app",
        "spec": {
          "include": [
            {
              "repository": {
                "name": "lib"
              }
            }
          ],
          "ref": {
            "branch": "main"
          },
          "url": "https://ci:xxxxx@git.example.org/app.git"
        },
        "specDigest": "sha256:cd89d0eb0f747dfeb6671f2bdb0948af40260715b18bb01bd7f262b1c87ecd99"
      },
      "resolvedDependencies": [
        {
          "uri": "git+https://git.example.org/app.git",
          "digest": {
            "gitCommit": "1111111111111111111111111111111111111111"
          },
          "annotations": {
            "revision": "main@sha1:1111111111111111111111111111111111111111",
            "tag": "4444444444444444444444444444444444444444",
            "verified": "verified signature of commit '1111' with key 'SHA256:<a>'"
          }
        },
        {
          "name": "ExternalArtifact/default/lib",
          "uri": "https://x/b.tar.gz?sig=***",
          "digest": {
            "sha256": "33"
          },
          "annotations": {
            "revision": "latest@sha256:22"
          }
        }
      ]
    },
    "runDetails": {
      "builder": {
        "id": "https://ci.example.org/release",
        "version": {
          "headgate": "v1.2.3"
        }
      }
    }
  }
}
`)
}

// Verify refuses a digest, an archive or a spec that does not match the statement.
func TestVerify(t *testing.T) {
	var archive strings.Builder
	_, err := artifact.Pack(t.Context(), &archive, fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}})
	testenv.Must(t, err)
	s, set := statement(t, strings.NewReader(archive.String()))
	content, err := artifact.ContentDigest(strings.NewReader(archive.String()))
	testenv.Must(t, err)
	testenv.Equal(t, s.Subject[0].Annotations["content"], content)
	digest, err := s.VerifyArchive(strings.NewReader(archive.String()))
	testenv.Must(t, err)
	testenv.Must(t, s.Verify(digest))
	testenv.Must(t, s.VerifySpec(set.Objects[0]))
	damaged, err := artifact.VerifyReader(strings.NewReader("other"), digest)
	testenv.Must(t, err)
	broken := errors.New("the disk is gone")
	_, noArchive := s.VerifyArchive(strings.NewReader(archive.String() + "\n"))
	_, inStore := s.VerifyArchive(damaged)
	_, unreadable := s.VerifyArchive(iotest.ErrReader(broken))
	edited := *s
	edited.Predicate.BuildDefinition.ExternalParameters.Spec = []byte(`{"url": "https://git.example.org/other.git"}`)
	for name, c := range map[string]struct {
		err  error
		is   error
		says string
	}{
		"another archive":       {noArchive, source.ErrVerification, "and the statement is about GitRepository/default/app with " + digest},
		"damage in the store":   {inStore, source.ErrVerification, "content has digest"},
		"an unreadable archive": {unreadable, broken, "the disk is gone"},
		"another algorithm":     {s.Verify("sha512:00"), source.ErrVerification, "the digest is sha512:00"},
		"no digest":             {s.Verify(""), source.ErrVerification, "the digest is ,"},
		"a spec that changed":   {s.VerifySpec(set.Objects[1]), source.ErrVerification, "the spec of ExternalArtifact/default/lib has the digest sha256:"},
		"a spec that is edited": {edited.VerifySpec(set.Objects[0]), source.ErrVerification, "the spec of GitRepository/default/app has the digest sha256:"},
	} {
		if !errors.Is(c.err, c.is) || !strings.Contains(fmt.Sprint(c.err), c.says) {
			t.Errorf("%s: %v, want %s", name, c.err, c.says)
		}
	}
	_, err = provenance.New(provenance.Builder{}, set.Objects[0], lock.Entry{}, nil, iotest.ErrReader(broken))
	testenv.ErrorIs(t, err, broken, "an unreadable archive has a statement")
}

// Parse refuses a text that is not a statement of headgate.
func TestParse(t *testing.T) {
	s, _ := statement(t, strings.NewReader(""))
	text, err := s.Encode()
	testenv.Must(t, err)
	for old, c := range map[string]struct{ new, says string }{
		string(text):                          {"apiVersion: v1", "invalid character"},
		"\n}\n":                               {"\n}\n{}", "more follows it"},
		`"_type"`:                             {`"mediaType"`, `unknown field "mediaType"`},
		"https://slsa.dev/provenance/v1":      {"https://spdx.dev/Document", `"https://spdx.dev/Document"`},
		"headgate.dev/fetch/v1":               {"headgate.dev/fetch/v2", "headgate.dev/fetch/v2"},
		`"name": "GitRepository/default/app"`: {`"name": 1`, "cannot unmarshal"},
	} {
		if _, err := provenance.Parse([]byte(strings.Replace(string(text), old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "it is no statement of headgate fetch --provenance: ") {
			t.Errorf("%.40s: %v, want %s", c.new, err, c.says)
		}
	}
}
