// Package provenance records how an artifact was made: from which content, for which spec, with
// whose signature verified, and by which builder. It writes in-toto Statements (v1) with SLSA
// provenance (v1), which tools such as cosign sign; it neither creates nor verifies signatures
// itself.
//
// A statement has no times and no credentials: it has the same bytes for the same artifact, made
// from the same content for the same spec by the same builder.
package provenance

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

// Identifiers in statements.
const (
	MediaType     = "application/vnd.in-toto+json"
	PredicateType = "https://slsa.dev/provenance/v1"
	statementType = "https://in-toto.io/Statement/v1"
	buildType     = "https://source.headgate.dev/fetch/v1"
)

// A Builder is the program or pipeline that makes artifacts.
type Builder struct {
	ID      string            `json:"id"`                // a URI, such as that of a pipeline
	Version map[string]string `json:"version,omitempty"` // of programs, by name
}

// A Resource is an in-toto ResourceDescriptor.
//
// The annotation revision is that of the artifact, or the version of a chart; verified is the
// message of SourceVerified, which names the verified signature; tag is the tag object that refers
// to a commit. For the archive of the artifact, content is the SHA-256 of its tar stream, as in a
// lock.
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"` // hexadecimal, by algorithm
	Annotations map[string]string `json:"annotations,omitempty"`
}

// A Statement describes how an artifact was made. Its first subject is the archive.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType          string `json:"buildType"`
			ExternalParameters struct {
				Object     string          `json:"object"` // KIND/NAMESPACE/NAME
				Spec       json.RawMessage `json:"spec"`   // see [lock.Spec]
				SpecDigest string          `json:"specDigest"`
			} `json:"externalParameters"`
			ResolvedDependencies []Resource `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder Builder `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// New returns the statement about the artifact of obj, whose archive is read from archive. entry is
// the lock entry of obj; inputs are the objects that obj needs.
func New(by Builder, obj source.Object, entry lock.Entry, inputs []source.Object, archive io.Reader) (*Statement, error) {
	sum := sha256.New()
	content, _ := artifact.ContentDigest(io.TeeReader(archive, sum)) // "" if it is not an archive
	if _, err := io.Copy(sum, archive); err != nil {
		return nil, err
	}
	spec, err := lock.Spec(obj)
	if err != nil {
		return nil, err
	}
	subject := newResource(source.ReferenceTo(obj).String(), "", obj.Artifact().Digest, map[string]string{"content": content})
	subject.Digest["sha256"] = fmt.Sprintf("%x", sum.Sum(nil)) // the digest that other tools compare
	s := &Statement{Type: statementType, Subject: []Resource{subject}, PredicateType: PredicateType}
	s.Predicate.RunDetails.Builder = by
	build := &s.Predicate.BuildDefinition
	build.BuildType, build.ResolvedDependencies = buildType, dependencies(obj, entry, inputs)
	params := &build.ExternalParameters
	params.Object, params.Spec, params.SpecDigest = subject.Name, spec, entry.SpecDigest
	return s, nil
}

// dependencies returns the content of the origin of obj and the artifacts that obj was made from.
// It has the charts of a chart repository, but not the repository itself.
func dependencies(obj source.Object, entry lock.Entry, inputs []source.Object) []Resource {
	all := []Resource{}
	if at := origin(obj); at != "" {
		revision := obj.Artifact().Revision
		all = append(all, newResource("", at, revision, map[string]string{"revision": revision, "tag": entry.Tag, "verified": verified(obj)}))
	}
	if c := entry.Chart; c != nil {
		all = append(all, newResource("", c.URL, c.Digest, map[string]string{"revision": c.Version, "verified": verified(obj)}))
	}
	for _, c := range entry.Dependencies {
		all = append(all, newResource(c.Name, c.URL, c.Digest, map[string]string{"revision": c.Version}))
	}
	for _, input := range inputs {
		if a := input.Artifact(); a != nil && input.Head().Kind != "PkgRepository" {
			all = append(all, newResource(source.ReferenceTo(input).String(), origin(input), a.Digest, map[string]string{"revision": a.Revision, "verified": verified(input)}))
		}
	}
	return all
}

// newResource returns a resource without empty annotations. The digest is ALGORITHM:HEX, or ends
// with it after an @.
func newResource(name, uri, digest string, annotations map[string]string) Resource {
	algorithm, value, _ := strings.Cut(digest[strings.LastIndexByte(digest, '@')+1:], ":")
	if name == "" && strings.HasPrefix(uri, "git+") {
		algorithm = "gitCommit"
	}
	maps.DeleteFunc(annotations, func(_, text string) bool { return text == "" })
	return Resource{name, redact.String(uri), map[string]string{algorithm: value}, annotations}
}

// origin returns the URI of the origin of obj, "" if it has none of its own.
func origin(obj source.Object) string {
	at := source.OriginOf(obj)
	switch o := obj.(type) {
	case *source.GitRepository:
		return "git+" + at
	case *source.Bucket:
		if !strings.Contains(at, "://") {
			return map[bool]string{false: "https://", true: "http://"}[o.Spec.Insecure] + at
		}
	case *source.PkgChart, *source.ExternalArtifact:
		if at = ""; len(obj.Plan().Needs) == 0 {
			return obj.Artifact().URL
		}
	}
	return at
}

// verified returns the message about the verified signature of the artifact of obj, "" if there is
// none.
func verified(obj source.Object) string {
	if c := obj.Common().Condition(source.SourceVerifiedCondition); c.Status == "True" {
		return c.Message
	}
	return ""
}

// Parse parses a statement written by [Statement.Encode].
func Parse(text []byte) (*Statement, error) {
	s := new(Statement)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(s)
	if _, tokenErr := dec.Token(); err == nil && tokenErr != io.EOF {
		err = errors.New("more follows it")
	}
	if got := []string{s.Type, s.PredicateType, s.Predicate.BuildDefinition.BuildType}; err == nil && !slices.Equal(got, []string{statementType, PredicateType, buildType}) {
		err = fmt.Errorf("its _type, predicateType and buildType are %q", got)
	}
	if err != nil {
		return nil, fmt.Errorf("it is no statement of headgate fetch --provenance: %w", err)
	}
	return s, nil
}

// Encode returns the statement as text.
func (s *Statement) Encode() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(s)
	return out.Bytes(), err
}

// Object returns KIND/NAMESPACE/NAME of the object that the statement is about.
func (s *Statement) Object() string { return s.Predicate.BuildDefinition.ExternalParameters.Object }

// Add adds another form of the artifact as a subject, such as the manifest that it was pushed with,
// unless it is a subject already. The digest is ALGORITHM:HEX.
func (s *Statement) Add(name, digest string) {
	if s.Verify(digest) != nil {
		s.Subject = append(s.Subject, newResource(name, "", digest, nil))
	}
}

// Verify returns nil if the digest, ALGORITHM:HEX, is that of a subject. Otherwise the error wraps
// [source.ErrVerification].
func (s *Statement) Verify(digest string) error {
	algorithm, value, _ := strings.Cut(digest, ":")
	var subjects []string
	for _, subject := range s.Subject {
		is := subject.Digest[algorithm]
		if is == value && is != "" {
			return nil
		}
		subjects = append(subjects, subject.Name+" with "+algorithm+":"+is)
	}
	return fmt.Errorf("%w: the digest is %s, and the statement is about %s", source.ErrVerification, digest, strings.Join(subjects, " and "))
}

// VerifyArchive checks that an archive is a subject, as [Statement.Verify] does, and returns its
// digest.
func (s *Statement) VerifyArchive(archive io.Reader) (digest string, err error) {
	sum := sha256.New()
	_, err = io.Copy(sum, archive)
	if _, damaged := errors.AsType[*artifact.DigestError](err); damaged {
		err = fmt.Errorf("%w: %w", source.ErrVerification, err)
	}
	if err != nil {
		return "", err
	}
	digest = fmt.Sprintf("sha256:%x", sum.Sum(nil))
	return digest, s.Verify(digest)
}

// VerifySpec returns nil if the artifact was made for the spec of obj. Otherwise the error wraps
// [source.ErrVerification].
func (s *Statement) VerifySpec(obj source.Object) error {
	params := s.Predicate.BuildDefinition.ExternalParameters
	sum, err := lock.SpecDigest(obj)
	if err != nil {
		return err
	}
	canonical, err := jsoncanonicalizer.Transform(params.Spec)
	if is := fmt.Sprintf("sha256:%x", sha256.Sum256(canonical)); err != nil || is != sum || params.SpecDigest != sum {
		return fmt.Errorf("%w: the spec of %s has the digest %s, and the statement is about %s", source.ErrVerification, obj.Head(), sum, is)
	}
	return nil
}
