package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// hashLen is the number of hexadecimal digits of the hash in the name of an object.
const hashLen = 10

// setName names an object that a URL stands for: as --name says if given is
// true, and otherwise by words and a hash of id, which tells its origin from all
// others. An object that is saved without the hash, as earlier releases named
// it, keeps that name. A name under which another URL is saved is refused: a
// failure would leave the artifact of that one in place.
func (s *session) setName(obj source.Object, words, id string, given bool) error {
	name := &obj.Head().Metadata.Name
	if given && s.flags.name != "" {
		*name = s.flags.name
		switch saved, err := s.savedOrigin(source.ReferenceTo(obj)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return &exitError{(&row{err: err}).code(false), err}
		case saved != id:
			return usage("--name %s: %s has this name, and another URL: choose another name, or forget that one with headgate delete", *name, sourceName(source.ReferenceTo(obj)))
		}
		return nil
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:hashLen]
	hashed := nameFor(words, 62-hashLen) + "-" + hash
	*name = hashed
	if _, err := s.savedObject(source.ReferenceTo(obj)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	*name = nameFor(words, 63)
	old, err := s.savedObject(source.ReferenceTo(obj))
	if err != nil || s.originOf(old) != id || !settled(old) {
		*name = hashed
	}
	return nil
}

// settled reports whether the artifact of a saved object, if it has one, is that
// of its spec: a failure leaves the artifact of the spec before.
func settled(obj source.Object) bool {
	status := obj.Common()
	return status.Artifact == nil || status.ObservedGeneration == obj.Head().Metadata.Generation && status.Condition(source.StalledCondition).Status != "True"
}

// savedObject returns the saved object of that name. The error wraps
// fs.ErrNotExist when there is none, and for a command without a store.
func (s *session) savedObject(ref source.Reference) (source.Object, error) {
	if s.flags.store == "" {
		return nil, fs.ErrNotExist
	}
	return ledgerOf(s.flags.store).Object(ref)
}

func (s *session) savedOrigin(ref source.Reference) (string, error) {
	obj, err := s.savedObject(ref)
	if err != nil {
		return "", err
	}
	return s.originOf(obj), nil
}

// originOf returns what tells the origin of an object from others, without
// credentials; of a chart with its saved repository. It is "" when that is not known.
func (s *session) originOf(obj source.Object) string {
	switch o := obj.(type) {
	case *source.GitRepository:
		return withoutUser(o.Spec.URL)
	case *source.OCIRepository:
		return withoutUser(o.Spec.URL)
	case *source.PkgRepository:
		return withoutUser(o.Spec.URL)
	case *source.Bucket:
		endpoint, _, _ := strings.Cut(withoutUser(o.Spec.Endpoint), "?") // a query is a signature
		return endpoint + "/" + o.Spec.BucketName + "/" + o.Spec.Prefix
	case *source.PkgChart:
		ref := source.Reference{Kind: o.Spec.SourceRef.Kind, Namespace: source.ReferenceTo(o).Namespace, Name: o.Spec.SourceRef.Name}
		if repo, err := s.savedOrigin(ref); err == nil {
			return chartOrigin(repo, o.Spec.Chart)
		}
	}
	return ""
}

func chartOrigin(repository, chart string) string { return repository + "#" + chart }

// withoutUser returns an address without its user and password.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.User = nil
	return u.String()
}

// lastWords returns the last element of the path of a URL.
func lastWords(u *url.URL) string { return strings.TrimSuffix(path.Base(u.Path), ".git") }

// nameFor makes the name of an object, of at most most bytes, from a text.
func nameFor(text string, most int) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text)), "-")
	if len(name) > most {
		name = strings.Trim(name[:most], "-")
	}
	if name == "" {
		return "source"
	}
	return name
}
