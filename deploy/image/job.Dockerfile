# A job's image: the runtime image, with the job and its skills in it. The build context is a folder with skills/ and job/:
#
#   docker build -f deploy/image/job.Dockerfile --build-arg IMAGE=registry/flink-skills@sha256:… FOLDER
#
# Both stay root's, so no process of the job can change them.
ARG IMAGE
FROM ${IMAGE}
COPY skills /opt/flink/skills
COPY job /opt/flink/job
