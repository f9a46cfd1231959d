package gcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// metadataHost is where a machine finds its metadata server, by address, so
// that no name server has a say.
const metadataHost = "169.254.169.254"

// byMachine asks the metadata server for a token of the machine's service account.
func (i identity) byMachine(ctx context.Context) (source.Credential, error) {
	universe, err := i.metadata(ctx, "universe/universe-domain")
	if status, ok := errors.AsType[*exchange.StatusError](err); ok && status.Status == http.StatusNotFound {
		universe, err = "", nil // older servers know one cloud
	}
	if absent(err) {
		return source.Credential{}, exchange.NoIdentity(err)
	}
	if err != nil {
		return source.Credential{}, err
	}
	if err := i.belongs(strings.TrimSpace(universe)); err != nil {
		return source.Credential{}, err
	}
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int    `json:"expires_in"`
	}
	key := "instance/service-accounts/default/token"
	if i.bucket {
		key += "?scopes=" + url.QueryEscape(i.scope)
	}
	req, err := i.question(ctx, key)
	if err != nil {
		return source.Credential{}, err
	}
	err = exchange.JSON(i.client, req, &answer)
	if status, ok := errors.AsType[*exchange.StatusError](err); absent(err) || ok && status.Status == http.StatusNotFound {
		return source.Credential{}, exchange.NoIdentity(err) // the machine has no service account
	}
	if err != nil {
		return source.Credential{}, err
	}
	return source.Credential{Token: answer.Token, Expires: time.Now().Add(time.Duration(answer.Seconds) * time.Second)}, nil
}

// absent reports whether err says that this is no machine of Google Cloud:
// nothing is there, or what refuses is another cloud's.
func absent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	status, ok := errors.AsType[*exchange.StatusError](err)
	return ok && status.Header(flavor) != "Google"
}

// flavor is a header of requests to the metadata server, and of its answers.
const flavor = "Metadata-Flavor"

// metadata returns the value of a key.
func (i identity) metadata(ctx context.Context, key string) (string, error) {
	req, err := i.question(ctx, key)
	if err != nil {
		return "", err
	}
	return exchange.Text(i.client, req)
}

// question is a request for a key of the metadata server.
func (i identity) question(ctx context.Context, key string) (*http.Request, error) {
	host := i.env.Value(metadataVariable)
	if host == "" {
		host = metadataHost
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+key, nil)
	if err != nil {
		return nil, wrong("%s is not HOST or HOST:PORT", metadataVariable)
	}
	req.Header.Set(flavor, "Google")
	req.Header.Set("User-Agent", "headgate")
	return req, nil
}
