"""The bundled trainer: runs on the node, never imports clusterkit."""
