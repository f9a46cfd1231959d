package aws

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/smithy-go/middleware"

	"github.com/headgate-io/headgate/source"
)

// registryCredential returns a credential for the registries at an endpoint. Keys
// that are refused are not used again.
func (p *Provider) registryCredential(ctx context.Context, client *http.Client, at endpoint) (source.Credential, error) {
	return p.tokens.Get(ctx, fmt.Sprint(at), func(ctx context.Context) (source.Credential, error) {
		keys, err := p.identify(ctx, client, at)
		if err != nil {
			return source.Credential{}, err
		}
		text, expires, err := askers[at.service](ctx, at, credentials.NewStaticCredentialsProvider(keys.Username, keys.Password, keys.Token), through(client))
		if err != nil {
			if err = p.explain(ctx, "get a token of "+at.service, err, keys.Password, keys.Token); errors.Is(err, source.ErrProvider) {
				keys.Refused()
			}
			return source.Credential{}, err
		}
		c, err := parse(text)
		c.Expires, c.Refused = expires, keys.Refused
		return c, err
	})
}

// An asker asks a service for an authorization token. The endpoint is that of
// the SDK's rules for the region; neither the environment nor a profile moves it.
type asker func(ctx context.Context, at endpoint, keys aws.CredentialsProvider, sender func(*middleware.Stack) error) (string, time.Time, error)

var askers = map[string]asker{registry: askRegistry, gallery: askGallery}

func askRegistry(ctx context.Context, at endpoint, keys aws.CredentialsProvider, sender func(*middleware.Stack) error) (string, time.Time, error) {
	o := ecr.Options{Region: at.region, Credentials: keys, RetryMaxAttempts: attempts, APIOptions: []func(*middleware.Stack) error{sender}}
	if at.fips {
		o.EndpointOptions.UseFIPSEndpoint = aws.FIPSEndpointStateEnabled
	}
	if at.dual {
		o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
	}
	out, err := ecr.New(o).GetAuthorizationToken(ctx, nil)
	if err != nil || len(out.AuthorizationData) == 0 {
		return "", time.Time{}, err
	}
	data := out.AuthorizationData[0]
	return aws.ToString(data.AuthorizationToken), aws.ToTime(data.ExpiresAt), nil
}

func askGallery(ctx context.Context, at endpoint, keys aws.CredentialsProvider, sender func(*middleware.Stack) error) (string, time.Time, error) {
	o := ecrpublic.Options{Region: at.region, Credentials: keys, RetryMaxAttempts: attempts, APIOptions: []func(*middleware.Stack) error{sender}}
	if at.dual {
		o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
	}
	out, err := ecrpublic.New(o).GetAuthorizationToken(ctx, nil)
	if err != nil || out.AuthorizationData == nil {
		return "", time.Time{}, err
	}
	return aws.ToString(out.AuthorizationData.AuthorizationToken), aws.ToTime(out.AuthorizationData.ExpiresAt), nil
}

// parse takes user name and password out of an authorization token: USER:PASSWORD in base64.
func parse(text string) (source.Credential, error) {
	plain, err := base64.StdEncoding.DecodeString(text)
	user, password, found := strings.Cut(string(plain), ":")
	if err != nil || !found {
		return source.Credential{}, errors.New("the answer of the registry's token service holds no token that can be sent")
	}
	return source.Credential{Username: user, Password: password}, nil
}
