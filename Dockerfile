# The command line in a container: docker build -t freeat . && docker run --rm -v "$PWD:/work" freeat train --data digits
#
# Without a build argument pip's default index gives the wheel of torch with CUDA, which also runs on CPUs. Other
# wheels (CPU only, which is a tenth of the size, or another CUDA) come from the index that PyTorch's installation
# page names: docker build --build-arg TORCH_INDEX=URL .
FROM python:3.11-slim
ARG TORCH_INDEX=""
ARG EXTRAS=autoattack,datasets,onnx
WORKDIR /opt/freeat
COPY constraints.txt ./
RUN pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" && useradd --create-home freeat
USER freeat
WORKDIR /work
ENTRYPOINT ["freeat"]
CMD ["--help"]
