package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/internal/document"
)

// Limits of [Set.Decode].
const (
	MaxStream   = document.MaxStream   // bytes of one stream
	MaxDocument = document.MaxDocument // bytes of one document, as in an API server
)

// A DocumentError reports a defect of an object: where it is and which rule it breaks. Its fields:
//
//	File     string // name of the file, "-" for standard input; "" for an object made in Go
//	Document int    // 1-based, 0 if it is not about one document
//	Line     int    // of the file, 1-based; 0 if unknown
//	Object   string // KIND/NAMESPACE/NAME, as far as known
//	Field    string // path of the field, for example spec.interval
//	Err      error  // the rule, which Unwrap returns
//
// Its text is FILE:LINE: document N: OBJECT: FIELD: RULE, without unknown parts and with control
// characters replaced.
type DocumentError = document.Error

// An Other is a document that is not kept in a [Set]: one of another kind, or not an object.
type Other = document.Other

// quote quotes a value of a document for an error, shortened to 80 bytes.
func quote(s string) string { return document.Quote(s) }

// A Set has the objects of streams of documents. The zero value is an empty set. It implements
// [Secrets] with the Secret and ServiceAccount documents.
type Set struct {
	Objects  []Object          // in the order of the documents
	Invalid  []Invalid         // documents with defects, if their names are known
	Secrets  map[string]Secret // Secret documents by NAMESPACE/NAME
	Skipped  int               // documents of other kinds
	Others   []Other           // the first 1000 of them, of each stream
	Warnings []error           // deprecated fields, conflicting refs: each a *DocumentError

	positions map[string]DocumentError // by KIND/NAMESPACE/NAME: location of the document
	accounts  map[string][]string      // by NAMESPACE/NAME: the pull secrets of a ServiceAccount
	unusable  map[string]error         // by KIND/NAMESPACE/NAME: error for an unusable Secret or ServiceAccount
	stored    bool                     // documents come from an API server: they may have the fields of all versions
	saved     bool                     // documents come from a ledger, which also has what generators make
}

// An Invalid is an object whose document has defects.
type Invalid struct {
	Object Object // as far as it can be read
	Err    error  // joins a *DocumentError for each defect
}

// Decode reads the documents of file into s: YAML documents, JSON values, or lists (kind List) of
// either. It keeps objects of the groups [Group] and [ReferenceGroup] and v1 Secret and
// ServiceAccount documents. For a HelmRelease with spec.chart it adds the PkgChart that a cluster
// would make, and after an [ArtifactGenerator] it adds the ExternalArtifacts that the generator
// makes. Documents of other kinds, and documents that are not objects, are counted in s.Skipped. A
// document whose apiVersion or kind differs from a supported one by at most two letters, or has no
// group, is an error: otherwise a typing error would drop it silently.
//
// The objects are as an API server would return them: checked (see [Validate]), with defaults
// filled in (see [Default]) and kinds in the specification's spelling. The error joins one
// *DocumentError for each defect, up to 100 of an object and 1000 of the stream; s has the valid
// objects in any case.
func (s *Set) Decode(file string, r io.Reader) error {
	stream, err := document.Open(file, r)
	if err != nil {
		return err
	}
	d := &streamDecoder{Stream: stream, set: s}
	for o := range stream.Objects() {
		switch {
		case o.Group == Group || o.Group == ReferenceGroup || o.Group == GeneratorGroup && o.Type == "ArtifactGenerator":
			d.addSource(o)
		case o.Group == releaseGroup && o.Type == "HelmRelease":
			d.addRelease(o)
		case o.APIVersion() == "v1" && o.Type == "Secret":
			d.addSecret(o)
		case o.APIVersion() == "v1" && o.Type == "ServiceAccount":
			d.addServiceAccount(o)
		case o.Group == "bitnami.com" && o.Type == "SealedSecret":
			d.addEncrypted(o, "is a SealedSecret, which only its cluster can decrypt: give its keys as files, environment variables or a Secret document")
		default:
			if suggestion := document.Suggest(o, knownDocuments); suggestion != "" {
				d.Fail(o.Node, o.Name(o.Type, DefaultNamespace), "%s %s is not known: did you mean %s?", quote(o.APIVersion()), quote(o.Type), suggestion)
			} else {
				d.Skip(o)
			}
		}
	}
	s.Skipped += stream.Skipped
	s.Others = append(s.Others, stream.Others...)
	return stream.Err()
}

// DecodeObject decodes one JSON object of an API server. It is as strict as [Set.Decode], except
// for the status, which another program may have written: there it skips fields that it cannot
// read. It accepts fields of v1beta2 in v1 too, because a server that has both versions stores
// either as v1. The error joins a *DocumentError for each defect. The object is returned even with
// an error, as far as it can be read; it is nil for a document of another kind.
func DecodeObject(text []byte) (Object, error) {
	var parts map[string]json.RawMessage
	var head Header
	if err := errors.Join(json.Unmarshal(text, &parts), json.Unmarshal(text, &head)); err != nil {
		return nil, err
	}
	k := kindBySpelling(head.Kind)
	if group := head.Group(); k == nil || group != Group && group != ReferenceGroup {
		return nil, fmt.Errorf("%s %s is not a source", quote(head.APIVersion), quote(head.Kind))
	}
	status := parts["status"]
	delete(parts, "status")
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	set := &Set{stored: true}
	err = set.Decode("", bytes.NewReader(text))
	var obj Object = k.make()
	if len(set.Objects) == 1 {
		obj = set.Objects[0]
	} else {
		_ = json.Unmarshal(text, obj) // err describes the defects
		obj.Head().spelled = head.Kind
		Default(obj)
	}
	if len(status) > 0 && DecodeStatus(obj, status) != nil {
		status, _ = json.Marshal(readable(obj, status))
		_ = DecodeStatus(obj, status)
	}
	renewRevisions(obj)
	return obj, err
}

// readable returns the fields of a status of obj that can be decoded.
func readable(obj Object, status []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(status, &fields) // a text that is not an object has no fields
	for name, value := range fields {
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil || DecodeStatus(obj, one) != nil {
			delete(fields, name)
		}
	}
	return fields
}

// DecodeFS decodes all files below root that end in .yaml, .yml or .json, in lexical order, as
// [Set.Decode] does. It skips directories whose names begin with a dot, and links to directories.
// If root is a file, it is decoded whatever its name.
func (s *Set) DecodeFS(fsys fs.FS, root string) error {
	var errs []error
	for name, err := range document.Files(fsys, root) {
		if err == nil {
			err = s.decodeFile(fsys, name)
		}
		for _, err := range document.Split(err) {
			if _, placed := err.(*DocumentError); !placed {
				err = &DocumentError{File: name, Err: err}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// decodeFile decodes a regular file. Only errors of Decode include its name.
func (s *Set) decodeFile(fsys fs.FS, name string) error {
	info, err := fs.Stat(fsys, name)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Decode(name, f)
}

// streamDecoder is the state while decoding one stream.
type streamDecoder struct {
	*document.Stream
	set *Set
}

// knownDocuments are the documents that [Set.Decode] supports.
var knownDocuments = func() []document.Known {
	ownGroup, refGroup := document.Known{Group: Group, Version: V1}, document.Known{Group: ReferenceGroup, Version: V1}
	for _, k := range Kinds(Group) {
		ownGroup.Kinds, refGroup.Kinds = append(ownGroup.Kinds, k.Name), append(refGroup.Kinds, kindBySpelling(k.Name).reference)
	}
	return []document.Known{{Version: "v1", Kinds: []string{"Secret", "ServiceAccount"}}, ownGroup, refGroup,
		{Group: GeneratorGroup, Version: GeneratorVersion, Kinds: []string{"ArtifactGenerator"}}}
}()

// addSource adds an object of one of the groups of this package.
func (d *streamDecoder) addSource(o document.Object) {
	k := kindBySpelling(o.Type)
	object := o.Name(o.Type, DefaultNamespace)
	switch {
	case k == nil && kindByName(o.Type) != nil:
		d.Fail(o.Node, object, "unknown kind %s: did you mean %s?", quote(o.Type), kindByName(o.Type).spell(o.Group))
	case k == nil:
		d.Fail(o.Node, object, "unknown kind %s of group %s", quote(o.Type), o.Group)
	case cmp.Or(k.group, o.Group) != o.Group:
		d.Fail(o.Node, object, "%s does not exist in group %s: set apiVersion to %s", k.name, o.Group, k.apiVersion(""))
	case o.Version == notServed && !k.exists(notServed):
		d.Fail(o.Node, object, "version v1beta1 is no longer read: set apiVersion to %s/v1 and see what validation says", o.Group)
	case !k.exists(o.Version):
		d.Fail(o.Node, object, "%s does not exist in version %s: set apiVersion to %s", k.spell(o.Group), quote(o.Version), k.apiVersion(o.Group))
	default:
		d.addObject(o, k)
	}
}

// addObject adds an object of the kind k.
func (d *streamDecoder) addObject(o document.Object, k *kind) {
	obj := k.make()
	version := o.Version
	if d.set.stored {
		version = ""
	}
	dec := &document.Decoder{Rules: k.rules(version)}
	dec.Decode(o.Node, obj, "")
	for _, r := range dec.Retired {
		copyRetired(obj, r)
	}
	obj.Head().spelled = o.Type
	Default(obj)
	renewRevisions(obj)
	advise(obj, &dec.Warnings)
	g, generator := obj.(*ArtifactGenerator)
	switch filed := d.register(o, o.Name(k.name, DefaultNamespace), dec, check(obj)); {
	case filed && generator && !d.set.saved:
		d.addGenerator(g)
	case filed:
		d.set.Objects = append(d.set.Objects, obj)
	case len(dec.Errors) > 0 && !dec.About("metadata"):
		d.set.Invalid = append(d.set.Invalid, Invalid{obj, errors.Join(dec.ErrorsFor(o.Name(o.Type, DefaultNamespace))...)})
	}
}

// copyRetired copies the value of a deprecated field to the field that replaced it.
func copyRetired(obj Object, r document.Retired) {
	text := r.Value.Text
	if text == "" {
		return
	}
	switch r.Path {
	case "spec.valuesFile":
		spec := &obj.(*PkgChart).Spec
		spec.ValuesFiles = append([]string{text}, spec.ValuesFiles...)
	case "status.artifact.checksum":
		if a := obj.Common().Artifact; a != nil {
			setDefault(&a.Digest, "sha256:"+text)
		}
	case "status.includedArtifacts[].checksum":
		i, all := 0, obj.(*GitRepository).Status.IncludedArtifacts
		if _, err := fmt.Sscanf(r.Field, "status.includedArtifacts[%d]", &i); err == nil && i < len(all) {
			setDefault(&all[i].Digest, "sha256:"+text)
		}
	}
}

// register records the defects and the position of an object. It reports whether the object can be
// added to the set under that name: it has no defects, and the set has no other object of that
// name. In that case it also keeps the warnings.
func (d *streamDecoder) register(o document.Object, name string, dec *document.Decoder, rules *document.Findings) bool {
	spelled := o.Name(o.Type, DefaultNamespace)
	if dec.Adopt(rules); len(dec.Errors) > 0 {
		d.Note(d.Locate(&dec.Findings, o.Node, spelled)...)
		return false
	}
	if err := d.set.setPosition(name, DocumentError{File: d.File, Document: d.Number, Line: o.Line, Object: spelled}); err != nil {
		d.Note(err)
		return false
	}
	if len(dec.Warnings.Errors) > 0 {
		d.set.Warnings = append(d.set.Warnings, d.Warn(&dec.Warnings, o.Node, spelled)...)
	}
	return true
}

// setPosition records the position of an object. It fails if the set has the object already.
func (s *Set) setPosition(name string, position DocumentError) error {
	if position.Err = s.duplicateError(name); position.Err != nil {
		return &position
	}
	put(&s.positions, name, position)
	return nil
}

// duplicateError returns an error with the position of an object in the set, nil if there is no such object.
func (s *Set) duplicateError(name string) error {
	position, found := s.positions[name]
	if !found {
		return nil
	}
	return fmt.Errorf("is in %s:%d (document %d) already: remove one of the two", position.File, position.Line, position.Document)
}

// At returns the position of the document of an object of s; Err is not set. If the object was not
// decoded into s, it is the zero value.
func (s *Set) At(obj Object) DocumentError { return s.positions[ReferenceTo(obj).String()] }

// Add adds the content of other, as if its streams had been decoded into s after those of s. If
// both have a document of the same object, s keeps its own, and the error joins a *DocumentError
// that names both positions. Afterwards the sets share objects and Secrets.
func (s *Set) Add(other *Set) error {
	var errs []error
	admit := func(name string) bool {
		err := s.setPosition(name, other.positions[name])
		errs = append(errs, err)
		return err == nil
	}
	left := map[Reference]bool{} // outputs of generators that were not added
	for _, obj := range other.Objects {
		ref := ReferenceTo(obj)
		added := !left[ref] && admit(ref.String())
		g, generator := obj.(*ArtifactGenerator)
		if added && generator {
			clashes := s.outputConflicts(g, other.At(g))
			errs, added = append(errs, clashes...), clashes == nil
		}
		switch {
		case added:
			s.Objects = append(s.Objects, obj)
		case generator:
			for _, output := range g.Plan().Needs {
				left[output] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.Secrets)) {
		if admit("Secret/" + name) {
			put(&s.Secrets, name, other.Secrets[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.accounts)) {
		if admit("ServiceAccount/" + name) {
			put(&s.accounts, name, other.accounts[name])
		}
	}
	for name, reason := range other.unusable {
		if s.unusable[name] == nil {
			put(&s.unusable, name, reason)
		}
	}
	s.Invalid = append(s.Invalid, other.Invalid...)
	s.Skipped += other.Skipped
	s.Others = append(s.Others, other.Others...)
	s.Warnings = append(s.Warnings, other.Warnings...)
	return errors.Join(errs...)
}

// put adds to a map, and creates the map if it is nil.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
