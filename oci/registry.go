package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// A server is a repository of a registry (distribution specification 1.1).
type server struct {
	gate *gate
	base *url.URL           // /v2/PATH/
	name registry.Reference // what tokens are asked for
	oras *remote.Repository // uploads
}

func newServer(a address, g *gate) *server {
	name := registry.Reference{Registry: g.registry.Host, Repository: a.path}
	return &server{
		gate: g,
		base: g.registry.ResolveReference(&url.URL{Path: "/v2/" + a.path + "/"}),
		name: name,
		oras: &remote.Repository{
			Client: g, Reference: name, PlainHTTP: g.registry.Scheme == "http",
			MaxMetadataBytes: maxManifest, SkipReferrersGC: true,
		},
	}
}

// accepted are the media types of manifests that we ask for.
var accepted = strings.Join([]string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerManifest, dockerIndex, ociArtifact,
}, ", ")

// at returns the URL of an endpoint of the repository.
func (s *server) at(endpoint string, query url.Values) *url.URL {
	return s.base.ResolveReference(&url.URL{Path: s.base.Path + endpoint, RawQuery: query.Encode()})
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
	resp, err := s.gate.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, s.gate.advise(refusal(resp, time.Now(), s.gate.secrets(resp.Request)...), resp.Request.URL, false)
	}
	return resp, nil
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

func (s *server) close() { s.gate.close() }
