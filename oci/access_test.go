package oci_test

import (
	"encoding/base64"
	"encoding/json"
)

// dockerconfig returns what docker login writes for a host.
func dockerconfig(host, user, password string) string {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	out, _ := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": auth}}})
	return string(out)
}
