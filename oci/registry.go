package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// A server is a repository of a registry (distribution specification 1.1). It reads
// by itself: oras-go wants lengths, types and digests in answers that registries
// leave out, and decodes lists without a bound. It uploads by oras-go.
type server struct {
	auth *authTransport
	base *url.URL           // /v2/PATH/
	name registry.Reference // what tokens are asked for
	oras *remote.Repository // uploads
}

func newServer(a address, t *authTransport) *server {
	s := &server{
		auth: t,
		base: t.registry.ResolveReference(&url.URL{Path: "/v2/" + a.path + "/"}),
		name: registry.Reference{Registry: t.registry.Host, Repository: a.path},
	}
	s.oras = &remote.Repository{
		Client: s, Reference: s.name, PlainHTTP: t.registry.Scheme == "http",
		MaxMetadataBytes: maxManifest, SkipReferrersGC: true,
	}
	return s
}

// accepted are the media types of manifests that we ask for.
var accepted = strings.Join([]string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerManifest, dockerIndex, ociArtifact,
}, ", ")

// at returns the URL of an endpoint of the repository.
func (s *server) at(endpoint string, query url.Values) *url.URL {
	return s.base.ResolveReference(&url.URL{Path: s.base.Path + endpoint, RawQuery: query.Encode()})
}

// expected are the statuses of success by method.
var expected = map[string]int{
	http.MethodHead: http.StatusOK, http.MethodGet: http.StatusOK, http.MethodPost: http.StatusAccepted, http.MethodPut: http.StatusCreated,
}

// Do implements [remote.Client]. A refusal is a [StatusError], except of the request
// by which oras-go finds out whether there is a list of referrers.
func (s *server) Do(req *http.Request) (*http.Response, error) {
	resp, err := s.auth.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	probe := req.Method == http.MethodGet && resp.StatusCode == http.StatusNotFound
	if resp.StatusCode != expected[req.Method] && !probe {
		return nil, s.auth.refused(resp, false)
	}
	return resp, nil
}

// ask sends a request without content. The status of the answer is 200; the
// caller closes its body.
func (s *server) ask(ctx context.Context, method string, u *url.URL, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull), method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	// Else the transport asks for gzip, and what is unpacked has neither the size nor the digest that was sent.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("Accept", accept)
	resp, err := s.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, s.auth.refused(resp, false)
	}
	return resp, err
}

// headless are the answers of registries that know no HEAD, and of servers of
// other protocols, which tell more in answer to GET.
var headless = []int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented}

func (s *server) head(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	resp, err := s.ask(ctx, http.MethodHead, s.at("manifests/"+reference, nil), accepted)
	if e, ok := errors.AsType[*StatusError](err); ok && slices.Contains(headless, e.Status) {
		return ocispec.Descriptor{}, errNoHead
	}
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	resp.Body.Close()
	d := digest.Digest(resp.Header.Get("Docker-Content-Digest"))
	if d == "" {
		return ocispec.Descriptor{}, errNoHead
	}
	if _, err := hasher(d); err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("header Docker-Content-Digest: %w", err)
	}
	return ocispec.Descriptor{MediaType: mediaType(resp), Digest: d, Size: max(resp.ContentLength, 0)}, nil
}

func (s *server) manifest(ctx context.Context, reference string) (string, io.ReadCloser, error) {
	resp, err := s.ask(ctx, http.MethodGet, s.at("manifests/"+reference, nil), accepted)
	if err != nil {
		return "", nil, err
	}
	if resp.ContentLength > maxManifest {
		resp.Body.Close()
		return "", nil, fmt.Errorf("it has %d bytes, at most %d are allowed", resp.ContentLength, maxManifest)
	}
	return mediaType(resp), resp.Body, nil
}

// mediaType returns the media type of an answer without parameters, "" when
// there is none that a descriptor could have.
func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || len(t) > 255 {
		return ""
	}
	return t
}

func (s *server) blob(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	resp, err := s.ask(ctx, http.MethodGet, s.at("blobs/"+d.Digest.String(), nil), "*/*")
	if err != nil {
		return nil, err
	}
	if resp.ContentLength >= 0 && resp.ContentLength != d.Size {
		resp.Body.Close()
		return nil, &ContentError{Digest: d.Digest, Size: d.Size, Read: min(resp.ContentLength, d.Size+1)}
	}
	return resp.Body, nil
}

func (s *server) close() { s.auth.close() }

func (s *server) push(ctx context.Context, d ocispec.Descriptor, content io.Reader) error {
	ctx = auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull, auth.ActionPush)
	have, err := s.has(ctx, d)
	if err != nil || have {
		return err
	}
	if forms[d.MediaType] == 0 {
		body := io.NopCloser(content) // net/http compares its length with that of d
		if r, ok := content.(*io.SectionReader); ok {
			body = section{r}
		}
		return bare(s.oras.Blobs().Push(ctx, d, body))
	}
	text, err := readAll(content, maxManifest)
	if err != nil {
		return err
	}
	if got := d.Digest.Algorithm().FromBytes(text); got != d.Digest {
		return &ContentError{Digest: d.Digest, Size: d.Size, Got: got, Read: int64(len(text))}
	}
	return bare(s.oras.Manifests().Push(ctx, d, bytes.NewReader(text)))
}

// has reports whether the repository has d. A registry that does not tell has not.
func (s *server) has(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	kind := "blobs/"
	if forms[d.MediaType] != 0 {
		kind = "manifests/"
	}
	resp, err := s.ask(ctx, http.MethodHead, s.at(kind+d.Digest.String(), nil), accepted)
	if e, ok := errors.AsType[*StatusError](err); ok && (e.Status == http.StatusNotFound || slices.Contains(headless, e.Status)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	resp.Body.Close()
	return true, nil
}

func (s *server) tag(ctx context.Context, d ocispec.Descriptor, tag string) error {
	ctx = auth.AppendRepositoryScope(ctx, s.name, auth.ActionPull, auth.ActionPush)
	d, text, err := readManifest(ctx, s, d.Digest.String(), d)
	if err != nil {
		return err
	}
	return bare(s.oras.PushReference(ctx, d, bytes.NewReader(text), tag))
}

// A section is the content of an upload that can be sent again, even while the
// first attempt still reads it.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

func (s section) again() (io.ReadCloser, error) {
	return section{io.NewSectionReader(s.SectionReader, 0, s.Size())}, nil
}
