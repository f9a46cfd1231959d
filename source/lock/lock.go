// Package lock reads and writes lock files. A lock pins the objects of a set of documents to
// revisions and content, whatever their origins have now.
//
// A lock is YAML, sorted by object and stable: the same entries give the same bytes, and a merge of
// two changes conflicts only if both change the same object. It has no times, sizes, signers or
// credentials. [Read] accepts at most 16 MiB.
package lock

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
)

// File is the usual name of a lock file, beside the documents that it pins.
const File = "headgate.lock"

const (
	version = 1
	maxFile = 16 << 20
	header  = "# Written by headgate lock. Commit it beside the documents; headgate update moves its entries.\n"
)

// An Entry is the part of a lock for one object. Entries of a PkgRepository and of an
// ArtifactGenerator have only the digest of the spec.
type Entry struct {
	SpecDigest string `yaml:"specDigest"` // see [SpecDigest]
	// Content is the SHA-256 of the uncompressed archive, for an artifact that headgate packs.
	// Digest is that of the bytes of any other artifact: a copied layer, or a chart as in its
	// repository. One of them is set.
	Content    string `yaml:"content,omitempty"`
	Digest     string `yaml:"digest,omitempty"`
	source.Pin `yaml:",inline"`
	Inputs     []string `yaml:"inputs,omitempty"` // KIND/NAMESPACE/NAME of the entries of the objects that the artifact is made from
}

// Entries are the entries of a lock by object.
type Entries map[source.Reference]Entry

// New returns the entry of obj without the fields that depend on its origin.
func New(obj source.Object) (Entry, error) {
	sum, err := SpecDigest(obj)
	e := Entry{SpecDigest: sum}
	for _, ref := range obj.Plan().Needs {
		e.Inputs = append(e.Inputs, ref.String())
	}
	return e, err
}

// OriginOnly reports whether e pins only the state of the origin, and no digest of the artifact.
func (e Entry) OriginOnly() bool { return e.Content == "" && e.Digest == "" }

// Equal reports whether two entries are equal.
func (e Entry) Equal(other Entry) bool { return reflect.DeepEqual(e, other) }

// file is the form of a lock file.
type file struct {
	Version int              `yaml:"version"`
	Objects map[string]Entry `yaml:"objects"`
}

// Read reads a lock file. The error names the invalid entry and field.
func Read(r io.Reader) (Entries, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	var f file
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && err != io.EOF {
		if bytes.Contains(text, []byte("<<<<<<<")) {
			err = errors.New("it has the marks of a merge that was not finished")
		}
		return nil, err
	}
	if f.Version != version {
		return nil, fmt.Errorf("version %d: this program reads version %d", f.Version, version)
	}
	entries := Entries{}
	for name, e := range f.Objects {
		ref, err := source.ParseReference(name)
		if err == nil && (ref.Namespace == "" || ref.Name == "") {
			err = errors.New("want KIND/NAMESPACE/NAME")
		}
		if _, twice := entries[ref]; err == nil && twice {
			err = errors.New("there are two entries for it")
		}
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return nil, fmt.Errorf("objects: %q: %w", name, err)
		}
		entries[ref] = e
	}
	return entries, nil
}

// check returns an error if a digest is malformed.
func (e Entry) check() error {
	digests := []struct{ field, value string }{{"specDigest", e.SpecDigest}}
	for _, d := range []struct{ field, value string }{{"content", e.Content}, {"digest", e.Digest}} {
		if d.value != "" {
			digests = append(digests, d)
		}
	}
	charts := e.Dependencies
	if e.Chart != nil {
		charts = append(slices.Clip(charts), *e.Chart)
	}
	for _, c := range charts {
		digests = append(digests, struct{ field, value string }{"digest of chart " + c.Version, c.Digest})
	}
	for _, d := range digests {
		if _, _, err := artifact.ParseDigest(d.value); err != nil {
			return fmt.Errorf("%s: %w", d.field, err)
		}
	}
	if e.Revision != "" && (e.Content == "") == (e.Digest == "") {
		return errors.New("want one of content and digest beside revision")
	}
	return nil
}

// Encode returns the text of the lock file.
func (e Entries) Encode() ([]byte, error) {
	f := file{Version: version, Objects: map[string]Entry{}}
	for ref, entry := range e {
		f.Objects[ref.String()] = entry
	}
	out := bytes.NewBufferString(header)
	enc := yaml.NewEncoder(out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	err := errors.Join(enc.Encode(f), enc.Close())
	return out.Bytes(), err
}

// SpecDigest returns the SHA-256, sha256:HEX, of the canonical JSON (RFC 8785) of the spec of obj
// in version v1 of headgate's group. It omits fields that have their default, interval, timeout and
// suspend, references to credentials, and everything that [source.Masked] removes. For an
// ExternalArtifact that a generator makes, it is the digest of the [source.Composition]. Specs that
// request the same content have the same digest in both groups and versions, however they were
// written.
func SpecDigest(obj source.Object) (string, error) {
	text, err := Spec(obj)
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

// Spec returns the text of which [SpecDigest] returns the digest.
func Spec(obj source.Object) ([]byte, error) {
	v1, _, err := source.Convert(obj, source.V1, source.Group)
	if err != nil {
		return nil, err
	}
	source.Default(v1)
	v1 = source.Masked(v1)
	for _, fact := range source.Facts(v1.Head().Kind) {
		if fact.Default == nil || fact.Shape != nil {
			continue
		}
		for _, v := range document.At(reflect.ValueOf(v1), fact.At) {
			if reflect.DeepEqual(v.Interface(), reflect.ValueOf(fact.Default).Convert(v.Type()).Interface()) {
				v.SetZero()
			}
		}
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	object.Spec = map[string]any{} // for a kind without spec
	text, err := json.Marshal(v1)
	if e, ok := obj.(*source.ExternalArtifact); ok && e.Composed != nil {
		err = json.Unmarshal(source.CanonicalSpec(e), &object.Spec)
	} else if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"interval", "timeout", "suspend"} {
		delete(object.Spec, field)
	}
	strip(object.Spec)
	if text, err = json.Marshal(object.Spec); err != nil {
		return nil, err
	}
	return jsoncanonicalizer.Transform(text)
}

// strip removes references to credentials, API versions of references, and empty mappings. It keeps
// an empty spec.verify, which requires a signature.
func strip(fields map[string]any) {
	for name, value := range fields {
		inner, _ := value.(map[string]any)
		if list, ok := value.([]any); ok {
			for _, item := range list {
				if m, ok := item.(map[string]any); ok {
					strip(m)
				}
			}
		}
		strip(inner)
		switch {
		case strings.HasSuffix(strings.ToLower(name), "secretref"),
			slices.Contains([]string{"serviceAccountName", "submoduleCredentials", "accessFrom", "apiVersion"}, name),
			inner != nil && len(inner) == 0 && name != "verify":
			delete(fields, name)
		}
	}
}
