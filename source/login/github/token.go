package github

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A token is an installation token.
type token struct {
	Value   string    `json:"token"`
	Expires time.Time `json:"expires_at"`
}

// A session asks the API for one token.
type session struct {
	app    transport.App
	base   *url.URL
	client *http.Client
	now    func() time.Time
}

// scope is what a token may be used for.
type scope struct {
	Repositories []string          `json:"repositories,omitempty"`
	Permissions  map[string]string `json:"permissions"`
}

// token gets a token that can read repository.
func (s *session) token(ctx context.Context, repository string) (token, error) {
	id := s.app.Installation
	if id == "" {
		var err error
		if id, err = s.installation(ctx); err != nil {
			return token{}, err
		}
	}
	wanted := scope{Permissions: map[string]string{"contents": "read"}}
	if repository != "" {
		wanted.Repositories = []string{repository}
	}
	path := "/app/installations/" + id + "/access_tokens"
	var t token
	err := s.ask(ctx, http.MethodPost, path, wanted, &t)
	if repository != "" && isStatus(err, http.StatusUnprocessableEntity) {
		wanted.Repositories = nil
		err = s.ask(ctx, http.MethodPost, path, wanted, &t)
	}
	return t, err
}

// installation looks the installation up by the owner of the repositories.
func (s *session) installation(ctx context.Context) (string, error) {
	var found struct {
		ID json.Number `json:"id"`
	}
	err := s.ask(ctx, http.MethodGet, "/orgs/"+s.app.Owner+"/installation", nil, &found)
	if isStatus(err, http.StatusNotFound) {
		err = s.ask(ctx, http.MethodGet, "/users/"+s.app.Owner+"/installation", nil, &found)
	}
	switch {
	case isStatus(err, http.StatusNotFound):
		return "", fmt.Errorf("%w: the app is not installed for %s: correct githubAppInstallationOwner, or install it", source.ErrProvider, s.app.Owner)
	case err != nil:
		return "", err
	}
	if id, err := found.ID.Int64(); err != nil || id <= 0 {
		return "", fmt.Errorf("the API tells no id of the installation for %s", s.app.Owner)
	}
	return found.ID.String(), nil
}

// ask sends one request to the API.
func (s *session) ask(ctx context.Context, method, path string, in, out any) error {
	proof, err := sign(s.app, s.now())
	if err != nil {
		return err
	}
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(s.base.String(), "/")+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+proof)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "headgate")
	if err := exchange.JSON(s.client, req, out); err != nil {
		return explain(err)
	}
	return nil
}

// hints say what to do about a status. What GitHub says of an app, its
// installation and its key does not pass by waiting.
var hints = map[int]string{
	http.StatusUnauthorized:        "check githubAppID, githubAppPrivateKey and the clock of this machine",
	http.StatusForbidden:           "check that the installation is not suspended",
	http.StatusNotFound:            "check githubAppInstallationID and githubAppBaseURL, and that the app is still installed",
	http.StatusUnprocessableEntity: "check that the app may read the contents of repositories",
}

func explain(err error) error {
	e, ok := errors.AsType[*exchange.StatusError](err)
	if !ok || e.Limited() || hints[e.Status] == "" {
		return err
	}
	return fmt.Errorf("%w: %w: %s", source.ErrProvider, err, hints[e.Status])
}

func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*exchange.StatusError](err)
	return ok && e.Status == status
}
